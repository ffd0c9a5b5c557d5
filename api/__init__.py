"""What the objects are: kinds, names, limits, errors, and the words that rooms exchange.

Leaves to others: whether an object is valid (`rules`), and anything that touches a network, a disk or a clock.
"""
