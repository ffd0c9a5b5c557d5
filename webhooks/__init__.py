"""May this be stored? AdmissionReviews in, answers out: defaults, and refusals that are confirmed before they are said.

Leaves to others: the rules (`rules`), the world that they look at and the sockets (`app` hands both in).
"""
