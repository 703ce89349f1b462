"""Kafka → staging."""
