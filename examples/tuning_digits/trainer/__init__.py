"""The trainer package of the hyperparameter tuning example."""
