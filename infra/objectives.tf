# Service level objectives: what users notice, as the share of minutes in which no message waits for longer than promised. Each has an
# alert on the rate at which it uses up its error budget. Source of 14.4: "Alerting on SLOs" in Google's Site Reliability Workbook, for 30 days.

resource "google_monitoring_custom_service" "this" {
  service_id   = local.name
  display_name = local.title

  depends_on = [time_sleep.apis]
}

locals {
  objectives = {
    submit       = { title = "submitted jobs are accepted or refused within a minute", max_s = 60 }
    replica-exit = { title = "ends of programs are judged within a minute", max_s = 60 }
    provision    = { title = "VMs follow the decisions within five minutes: no job is stuck", max_s = 300 }
  }
}

resource "google_monitoring_slo" "this" {
  for_each            = local.objectives
  service             = google_monitoring_custom_service.this.service_id
  slo_id              = each.key
  display_name        = "99 % of minutes: ${each.value.title}"
  goal                = 0.99
  rolling_period_days = 30

  windows_based_sli {
    window_period = "60s"

    metric_mean_in_range {
      time_series = "metric.type=\"pubsub.googleapis.com/subscription/oldest_unacked_message_age\" AND resource.type=\"pubsub_subscription\" AND resource.labels.subscription_id=\"${google_pubsub_topic.this[each.key].name}\""

      range {
        max = each.value.max_s
      }
    }
  }
}

resource "google_monitoring_alert_policy" "burn_rate" {
  for_each              = local.objectives
  display_name          = "${local.title}: not so for nine minutes of an hour: ${each.value.title}"
  combiner              = "OR"
  notification_channels = [google_monitoring_notification_channel.email.id]

  conditions {
    display_name = "The hour used 2 % of the error budget of 30 days"

    condition_threshold {
      filter          = "select_slo_burn_rate(\"${google_monitoring_slo.this[each.key].name}\", \"3600s\")"
      comparison      = "COMPARISON_GT"
      threshold_value = 14.4
      duration        = "0s"
    }
  }

  documentation {
    content   = "Messages of this topic wait for too long. docs/runbooks.md#backlog"
    mime_type = "text/markdown"
  }
}
