"""The code that `boosted_trees` and `xgboost_dist` share.

parameters   arguments → XGBoost's parameters
training     the boosting rounds, with checkpoints
matrices     tables → features, targets, weights
peers        XGBoost's collectives over all replicas
"""
