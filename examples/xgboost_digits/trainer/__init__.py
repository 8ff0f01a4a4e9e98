"""The XGBoost trainer: boosted trees on scikit-learn's handwritten digits, on one machine or
several.
"""
