variable "project" {
  description = "Project that Trainmaster is installed in: its id, not its number."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project))
    error_message = "A project id has 6 to 30 lower-case letters, digits and hyphens, such as my-project."
  }
}

variable "region" {
  description = "Region of the control plane: functions, database, bucket. Jobs name their own."
  type        = string
}

variable "notify" {
  description = "E-mail address that alerts and budget warnings go to."
  type        = string

  validation {
    condition     = can(regex("^[^@[:space:]]+@[^@[:space:]]+$", var.notify))
    error_message = "An e-mail address, such as platform@example.com."
  }
}

variable "stage" {
  description = "Folder with one archive per function, as `make stage` leaves it."
  type        = string
  default     = "../build/stage"
}

variable "limits" {
  description = "The most that all jobs together may use, such as { vcpus = 450, nvidia-tesla-t4 = 8 }; others wait. Empty: none."
  type        = map(number)
  default     = {}
}

variable "clients" {
  description = "Who may submit jobs and read them, through the API or by upload: IAM members, such as group:ml@example.com."
  type        = set(string)
  default     = []
}

variable "schemas" {
  description = "Whether Pub/Sub itself refuses what is no message of an agent. The functions check them in any case."
  type        = bool
  default     = true
}

variable "worker_regions" {
  description = "Regions that jobs may run in: each gets a subnetwork. Region name => address range."
  type        = map(string)
  default     = { us-central1 = "10.128.0.0/20" }
}

variable "nat" {
  description = "Whether VMs may reach the internet (for packages from an index), through Cloud NAT. They never have addresses of their own."
  type        = bool
  default     = true
}

variable "budget" {
  description = "Monthly amount at which warnings are sent, in the billing account's currency. Needs billing_account; null: no budget."
  type        = number
  default     = null
}

variable "billing_account" {
  description = "Billing account of the budget, such as 012345-6789AB-CDEF01."
  type        = string
  default     = null
}

variable "keep_data" {
  description = "Whether bucket and database are protected from `terraform destroy`: packages, checkpoints, models, jobs and their history."
  type        = bool
  default     = true
}
