"""A small cluster in memory: what the decisions do to it, whatever users, Jobs and pods do meanwhile."""
