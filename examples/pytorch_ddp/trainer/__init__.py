"""The PyTorch trainer: DistributedDataParallel over gloo, on scikit-learn's handwritten digits."""
