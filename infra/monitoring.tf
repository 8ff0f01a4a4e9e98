# Alerts and dashboard. Each alert's documentation names its section of docs/runbooks.md.

resource "google_monitoring_notification_channel" "email" {
  display_name = local.title
  type         = "email"
  labels       = { email_address = var.notify }

  depends_on = [time_sleep.apis]
}

locals {
  alerts = {
    dead-letters = {
      title    = "${local.title}: messages in the dead letter"
      filter   = "metric.type=\"pubsub.googleapis.com/subscription/num_undelivered_messages\" AND resource.type=\"pubsub_subscription\" AND resource.labels.subscription_id=\"${google_pubsub_subscription.dead_letter.name}\""
      aligner  = "ALIGN_MAX"
      above    = 0
      for_s    = 0
      period_s = 300
      text     = "A message could not be handled. It is kept: read its reason, repair the cause, and replay it. docs/runbooks.md#dead-letters"
    }
    # A forged message of a user or a program triggers the alert above, but not this one, for which the function itself must fail.
    undeliverable = {
      title    = "${local.title}: a function failed on a message in all deliveries"
      filter   = "metric.type=\"pubsub.googleapis.com/subscription/dead_letter_message_count\" AND resource.type=\"pubsub_subscription\" AND resource.labels.subscription_id=starts_with(\"${local.name}-\")"
      aligner  = "ALIGN_DELTA"
      above    = 0
      for_s    = 0
      period_s = 300
      text     = "Pub/Sub moved a message to the dead letter after the last delivery. docs/runbooks.md#dead-letters"
    }
    backlog = {
      title    = "${local.title}: events wait for more than ten minutes"
      filter   = "metric.type=\"pubsub.googleapis.com/subscription/oldest_unacked_message_age\" AND resource.type=\"pubsub_subscription\" AND resource.labels.subscription_id=starts_with(\"${local.name}-\") AND resource.labels.subscription_id!=\"${google_pubsub_subscription.dead_letter.name}\""
      aligner  = "ALIGN_MAX"
      above    = 600
      for_s    = 300
      period_s = 300
      text     = "A function keeps answering 503 or 500. docs/runbooks.md#backlog"
    }
    # 503 is not counted: a function answers 503 while another service is unavailable, and Pub/Sub delivers the message again. If that
    # lasts, the alert `backlog` reports it.
    errors = {
      title    = "${local.title}: a function fails"
      filter   = "metric.type=\"run.googleapis.com/request_count\" AND resource.type=\"cloud_run_revision\" AND resource.labels.service_name=starts_with(\"${local.name}-\") AND metric.labels.response_code=one_of(\"500\", \"504\")"
      aligner  = "ALIGN_DELTA"
      above    = 20
      for_s    = 0
      period_s = 300
      text     = "A function answered more than 20 requests with 500 or 504 in five minutes. docs/runbooks.md#backlog"
    }
  }
}

resource "google_monitoring_alert_policy" "this" {
  for_each              = local.alerts
  display_name          = each.value.title
  combiner              = "OR"
  notification_channels = [google_monitoring_notification_channel.email.id]

  conditions {
    display_name = each.value.title

    condition_threshold {
      filter          = each.value.filter
      comparison      = "COMPARISON_GT"
      threshold_value = each.value.above
      duration        = "${each.value.for_s}s"

      aggregations {
        alignment_period   = "${each.value.period_s}s"
        per_series_aligner = each.value.aligner
      }
    }
  }

  documentation {
    content   = each.value.text
    mime_type = "text/markdown"
  }
}

# A missing tick leaves no message that could age. This alert therefore watches for the absence of acknowledged deliveries.
resource "google_monitoring_alert_policy" "sweep_silent" {
  display_name          = "${local.title}: the sweep does not run"
  combiner              = "OR"
  notification_channels = [google_monitoring_notification_channel.email.id]

  conditions {
    display_name = "No tick acknowledged for ten minutes"

    condition_absent {
      filter   = "metric.type=\"pubsub.googleapis.com/subscription/push_request_count\" AND resource.type=\"pubsub_subscription\" AND resource.labels.subscription_id=\"${google_pubsub_topic.this["sweep"].name}\" AND metric.labels.response_class=\"ack\""
      duration = "600s"

      aggregations {
        alignment_period     = "60s"
        per_series_aligner   = "ALIGN_DELTA"
        cross_series_reducer = "REDUCE_SUM"
      }
    }
  }

  documentation {
    content   = "Lost VMs and deadlines are not detected. Training continues, and every VM has a time limit. docs/runbooks.md#sweep"
    mime_type = "text/markdown"
  }
}

# This alert matches log lines directly. A log-based metric would be unknown to Monitoring for ten minutes after its creation,
# so that the first apply would fail. Source: hashicorp/terraform-provider-google issue 11102.
resource "google_monitoring_alert_policy" "orphans" {
  display_name          = "${local.title}: a VM without an owner was found"
  combiner              = "OR"
  notification_channels = [google_monitoring_notification_channel.email.id]

  conditions {
    display_name = "provision found one"

    condition_matched_log {
      filter = "resource.type=\"cloud_run_revision\" resource.labels.service_name=\"${module.function["provision"].name}\" jsonPayload.action=\"orphan_found\""
    }
  }

  alert_strategy {
    notification_rate_limit {
      period = "3600s"
    }
  }

  documentation {
    content   = "The VM is deleted after it is seen twice. It was created by hand, or its job was removed. docs/runbooks.md#orphans"
    mime_type = "text/markdown"
  }
}

resource "google_monitoring_alert_policy" "unreadable_job" {
  display_name          = "${local.title}: a job cannot be read"
  combiner              = "OR"
  notification_channels = [google_monitoring_notification_channel.email.id]

  conditions {
    display_name = "a function could not read its document"

    condition_matched_log {
      filter = "resource.type=\"cloud_run_revision\" resource.labels.service_name=~\"^${local.name}-\" jsonPayload.action=\"unreadable_job\""
    }
  }

  alert_strategy {
    notification_rate_limit {
      period = "3600s"
    }
  }

  documentation {
    content   = "Another release wrote its document. All other jobs continue. docs/runbooks.md#unreadable-job"
    mime_type = "text/markdown"
  }
}

resource "google_monitoring_alert_policy" "refused" {
  display_name          = "${local.title}: Google refuses calls about VMs"
  combiner              = "OR"
  notification_channels = [google_monitoring_notification_channel.email.id]

  conditions {
    display_name = "provision was refused"

    condition_matched_log {
      filter = "resource.type=\"cloud_run_revision\" resource.labels.service_name=\"${module.function["provision"].name}\" jsonPayload.action=\"refused_call\""
    }
  }

  alert_strategy {
    notification_rate_limit {
      period = "3600s"
    }
  }

  documentation {
    content   = "Jobs wait until it is repaired: one that has not run yet for an hour, any other as long as it may run. docs/runbooks.md#refused"
    mime_type = "text/markdown"
  }
}

resource "google_monitoring_dashboard" "this" {
  dashboard_json = jsonencode({
    displayName = local.title
    gridLayout = {
      columns = 2
      widgets = [for title, shown in {
        "Events waiting, oldest (s)"   = ["pubsub.googleapis.com/subscription/oldest_unacked_message_age", "pubsub_subscription", "ALIGN_MAX"]
        "Events delivered, per second" = ["pubsub.googleapis.com/subscription/push_request_count", "pubsub_subscription", "ALIGN_RATE"]
        "Calls of functions"           = ["run.googleapis.com/request_count", "cloud_run_revision", "ALIGN_RATE"]
        "Instances of functions"       = ["run.googleapis.com/container/instance_count", "cloud_run_revision", "ALIGN_MAX"]
        } : {
        title = title
        xyChart = {
          dataSets = [{
            timeSeriesQuery = {
              timeSeriesFilter = {
                filter      = "metric.type=\"${shown[0]}\" AND resource.type=\"${shown[1]}\" AND resource.labels.${shown[1] == "pubsub_subscription" ? "subscription_id" : "service_name"}=starts_with(\"${local.name}-\")"
                aggregation = { alignmentPeriod = "60s", perSeriesAligner = shown[2] }
              }
            }
          }]
        }
      }]
    }
  })

  depends_on = [time_sleep.apis]
}
