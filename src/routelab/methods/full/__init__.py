"""Full fine-tuning."""
