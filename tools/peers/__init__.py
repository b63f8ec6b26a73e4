"""The parts of tools/test-peers.py."""
