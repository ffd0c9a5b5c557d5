"""Everything that exists only for the speed of a review: same answers, byte for byte, with less work.

Not here: what an answer says (`webhooks`, `rules`).
"""
