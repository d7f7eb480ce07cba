"""What `conformance/boundaries` is made of: requests whose ends are unclear, the servers they go to, and what is a fault."""
