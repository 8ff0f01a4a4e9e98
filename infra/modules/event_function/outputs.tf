output "uri" {
  value = google_cloudfunctions2_function.this.service_config[0].uri
}

output "name" {
  value = google_cloudfunctions2_function.this.name
}

output "subscription" {
  description = "Name of its push subscription; null where it has none."
  value       = one(google_pubsub_subscription.this[*].name)
}
