variable "project" {
  description = "Id (not number) of the project that Trainmaster is installed in."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project))
    error_message = "project must be a project id: 6 to 30 lower-case letters, digits and hyphens, such as my-project."
  }
}

variable "region" {
  description = "Region of the control plane: functions, database, bucket. Jobs specify their own region."
  type        = string
}

variable "notify" {
  description = "E-mail address for alerts and budget warnings."
  type        = string

  validation {
    condition     = can(regex("^[^@[:space:]]+@[^@[:space:]]+$", var.notify))
    error_message = "notify must be an e-mail address, such as platform@example.com."
  }
}

variable "stage" {
  description = "Folder with one archive per function; `make stage` builds it."
  type        = string
  default     = "../build/stage"
}

variable "limits" {
  description = "Limits for all jobs together, such as { vcpus = 450, nvidia-tesla-t4 = 8 }. Further jobs are queued. Empty: no limits."
  type        = map(number)
  default     = {}
}

variable "clients" {
  description = "IAM members that may submit jobs by upload or message, such as group:ml@example.com."
  type        = set(string)
  default     = []
}

variable "schemas" {
  description = "Whether Pub/Sub validates the agents' messages by schemas. The functions validate them in any case."
  type        = bool
  default     = true
}

variable "worker_regions" {
  description = "Regions in which jobs may run, with the address range of their subnetwork: region => range."
  type        = map(string)
  default     = { us-central1 = "10.128.0.0/20" }
}

variable "nat" {
  description = "Whether VMs can reach the internet through Cloud NAT, for example to install packages. They have no external addresses."
  type        = bool
  default     = true
}

variable "budget" {
  description = "Monthly budget for warnings, in the billing account's currency. Requires billing_account. null: no budget."
  type        = number
  default     = null
}

variable "billing_account" {
  description = "Billing account of the budget, such as 012345-6789AB-CDEF01."
  type        = string
  default     = null
}

variable "keep_data" {
  description = "Whether `terraform destroy` keeps bucket and database: packages, checkpoints, models, jobs and their history."
  type        = bool
  default     = true
}
