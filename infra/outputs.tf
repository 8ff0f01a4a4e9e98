output "bucket" {
  description = "Packages, job files and job directories."
  value       = google_storage_bucket.this.name
}

output "api" {
  description = "What the old service's clients are pointed at."
  value       = module.function["api"].uri
}

output "next" {
  description = "The next commands: the installation looked at, a first job, and Google's own clients."
  value       = <<-EOT
    cd .. && source .venv/bin/activate
    export TRAINMASTER_PROJECT=${var.project} TRAINMASTER_BUCKET=${google_storage_bucket.this.name}
    trainmaster doctor --project ${var.project} --region ${keys(var.worker_regions)[0]}
    trainmaster submit digits_1 --config examples/digits/job.yaml --package-path examples/digits/trainer --job-dir gs://${google_storage_bucket.this.name}/digits --region ${keys(var.worker_regions)[0]} --stream-logs
    export CLOUDSDK_API_ENDPOINT_OVERRIDES_ML=${module.function["api"].uri}/
    export CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM=${module.function["api"].uri}/
    gcloud ai-platform jobs list --project ${var.project}
  EOT
}
