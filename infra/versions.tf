terraform {
  required_version = ">= 1.9" # conditions of variables name other variables

  required_providers {
    google = {
      source  = "hashicorp/google"
      version = "6.50.0" # the version whose schema the tests check
    }
    time = {
      source  = "hashicorp/time"
      version = "~> 0.12"
    }
  }
}

provider "google" {
  project               = var.project
  region                = var.region
  billing_project       = var.project
  user_project_override = true
  default_labels        = var.labels
}

data "google_project" "this" {
  project_id = var.project
  depends_on = [time_sleep.apis]
}
