"""Everything that exists only for the speed of a review: the same answers, byte for byte, with less work.

The setting fastPath switches all of it. Not here: what an answer contains (`webhooks`, `rules`).
"""
