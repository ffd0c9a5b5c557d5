"""May this be stored? AdmissionReviews in, answers out: defaults, and refusals that are confirmed before they are sent.

Not here: the rules (`rules`), the objects that they read, and the sockets (`app` passes both in).
"""
