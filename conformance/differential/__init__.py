"""The differential harness behind `conformance/differ`: its parts, by role."""
