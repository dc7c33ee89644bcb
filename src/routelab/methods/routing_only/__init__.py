"""Routing-only fine-tuning."""
