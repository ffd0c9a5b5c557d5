"""What should exist, and what do we report? Informers, work queue, leader lease, one controller per kind.

Leaves to others: the rules (`rules`), what happens on the disk (`disk`), how the process is wired (`app`).
"""
