"""What is generated and audited in a checkout: CRDs, reference pages, the chart's schema, the bill of materials.

Not here: anything that runs in a cluster; neither wheel nor image contains this room.
"""
