output "bucket" {
  description = "Packages, job files and job directories."
  value       = google_storage_bucket.this.name
}

output "api" {
  description = "What the old service's clients are pointed at."
  value       = module.function["api"].uri
}

output "next" {
  description = "The next commands."
  value       = <<-EOT
    trainmaster doctor --project ${var.project}
    gsutil cp examples/digits/job.yaml gs://${google_storage_bucket.this.name}/jobs/
    export CLOUDSDK_API_ENDPOINT_OVERRIDES_ML=${module.function["api"].uri}/
    export CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM=${module.function["api"].uri}/
    gcloud ai-platform jobs list --project ${var.project}
  EOT
}
