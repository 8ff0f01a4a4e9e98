"""What the functions are deployed from and as: Terraform beside this, and the archives that it deploys (`stage`)."""
