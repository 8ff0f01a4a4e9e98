"""The digits trainer: a Keras model on scikit-learn's handwritten digits, trained synchronously on
several machines.
"""
