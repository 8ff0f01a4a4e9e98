# Users store their training images here.
resource "google_artifact_registry_repository" "this" {
  # checkov:skip=CKV_GCP_84:Google's keys encrypt it. A customer-managed key costs money while nothing runs, and its loss would lose the images.
  location      = var.region
  repository_id = local.name
  format        = "DOCKER"
  description   = "Training containers"

  depends_on = [time_sleep.apis]
}

# A mirror of PyPI. VMs reach it through private Google access, so packages do not pass through Cloud NAT (docs/faster-starts.md).
resource "google_artifact_registry_repository" "packages" {
  count = var.package_mirror ? 1 : 0
  # checkov:skip=CKV_GCP_84:Google's keys encrypt it. It holds copies of public packages.
  location      = var.region
  repository_id = "${local.name}-pypi"
  format        = "PYTHON"
  mode          = "REMOTE_REPOSITORY"
  description   = "Copies of the packages that VMs install from PyPI"

  remote_repository_config {
    description = "PyPI"
    python_repository {
      public_repository = "PYPI"
    }
  }

  depends_on = [time_sleep.apis]
}

# Images of the functions. Google's default repository is shared with all other functions of the project.
resource "google_artifact_registry_repository" "functions" {
  # checkov:skip=CKV_GCP_84:Google's keys encrypt it, as above.
  location      = var.region
  repository_id = "${local.name}-functions"
  format        = "DOCKER"
  description   = "Images of Trainmaster's functions"

  cleanup_policies {
    id     = "keep-recent"
    action = "KEEP"
    most_recent_versions {
      keep_count = 3
    }
  }
  cleanup_policies {
    id     = "delete-old"
    action = "DELETE"
    condition {
      older_than = "2592000s" # 30 days
    }
  }

  depends_on = [time_sleep.apis]
}
