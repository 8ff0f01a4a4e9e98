"""Accept jobs: for uploads, messages, the API and trials."""
