output "bucket" {
  description = "Bucket of packages, job files and job directories."
  value       = google_storage_bucket.this.name
}

output "api" {
  description = "Address of the API, for clients of AI Platform Training and Vertex AI."
  value       = module.function["api"].uri
}

output "next" {
  description = "The next commands: check the installation, submit a first job, use Google's own clients."
  value       = <<-EOT
    cd .. && source .venv/bin/activate
    trainmaster init --project ${var.project} --bucket ${google_storage_bucket.this.name} --region ${local.first_region} --api ${module.function["api"].uri}%{if var.installation != ""} --installation ${var.installation}%{endif}
    trainmaster doctor --project ${var.project} --region ${local.first_region}
    trainmaster submit digits_1 --config examples/digits/job.yaml --package-path examples/digits/trainer --job-dir gs://${google_storage_bucket.this.name}/digits --region ${local.first_region} --stream-logs
    export TRAINMASTER_API_ENDPOINT=${module.function["api"].uri}
    export CLOUDSDK_API_ENDPOINT_OVERRIDES_ML=${module.function["api"].uri}/
    export CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM=${module.function["api"].uri}/
    gcloud ai-platform jobs list --project ${var.project}%{if var.console}
    export TRAINMASTER_CONSOLE_ADDRESS=${module.console["console"].uri}%{endif}
  EOT
}
