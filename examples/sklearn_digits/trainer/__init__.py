"""The scikit-learn trainer: one machine, a few seconds, no large dependencies."""
