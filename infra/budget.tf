resource "google_billing_budget" "this" {
  count           = var.budget == null ? 0 : 1
  billing_account = var.billing_account
  display_name    = "${local.title} in ${var.project}"

  budget_filter {
    projects = ["projects/${data.google_project.this.number}"]
  }

  amount {
    specified_amount {
      units = tostring(var.budget)
    }
  }

  dynamic "threshold_rules" {
    for_each = [0.5, 0.9, 1.0]
    content {
      threshold_percent = threshold_rules.value
    }
  }

  all_updates_rule {
    monitoring_notification_channels = [google_monitoring_notification_channel.email.id]
  }

  lifecycle {
    precondition {
      condition     = var.billing_account != null
      error_message = "budget needs billing_account. Find the account with: gcloud billing projects describe PROJECT"
    }
  }
}
