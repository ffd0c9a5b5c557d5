"""How is it wired? Settings, servers, process life cycle, the command line.

Leaves to others: everything that could be tested without a process. It is the only room that knows them all.
"""
