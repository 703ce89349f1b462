"""What Keepsake decides about text without a model: normal forms, secrets, and what a fact may not hold."""
