"""The product on a whole cluster: adapters and services from apply to serving and deletion."""
