# Compute Engine's system events of the installation's VMs: one was preempted or lost. They usually arrive seconds after the event.
resource "google_logging_project_sink" "system_events" {
  name                   = "${local.name}-system-events"
  destination            = "pubsub.googleapis.com/${google_pubsub_topic.this["system-events"].id}"
  unique_writer_identity = true
  # The filter compares the whole log name with `=`, because every VM may write to a log whose name contains a part of this name.
  filter = "logName=\"projects/${var.project}/logs/cloudaudit.googleapis.com%2Fsystem_event\" resource.type=\"gce_instance\" protoPayload.resourceName:\"/instances/${local.vms}\""
}

resource "google_pubsub_topic_iam_member" "system_events_by_sink" {
  topic  = google_pubsub_topic.this["system-events"].id
  role   = "roles/pubsub.publisher"
  member = google_logging_project_sink.system_events.writer_identity

  depends_on = [time_sleep.identities]
}

# Agents send each line of a program to Cloud Logging. Google's runner of startup scripts sends the agent's output there, too. Only the
# lines of the startup script and of the agent itself are kept from the runner: they explain VMs whose agent does not work.
# Excluded entries are not charged. Source of the log names: GoogleCloudPlatform/guest-agent.
resource "google_logging_project_exclusion" "copies_of_lines" {
  name        = "${local.name}-copies-of-lines"
  description = "Copies of the lines that programs of jobs print."
  filter      = "logName=(\"projects/${var.project}/logs/GCEMetadataScripts\" OR \"projects/${var.project}/logs/GCEMetadataScriptRunner\") resource.type=\"gce_instance\" labels.instance_name=~\"^${local.vms}\" NOT jsonPayload.message:\"[trainmaster]\""

  depends_on = [time_sleep.apis]
}
