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
  description = "Folder with the agent and one archive per function; `make stage` builds it."
  type        = string
  default     = "../build/stage"
}

variable "limits" {
  description = "Limits for all jobs together, such as { vcpus = 450, nvidia-tesla-t4 = 8 }. Further jobs are queued. Empty: no limits."
  type        = map(number)
  default     = {}
}

variable "allowed_resources" {
  description = "Resources that every job may name, such as secret=projects/my-project/secrets/key. Kinds: service_account, network, image, reservation, kms_key, secret. Any other one requires a submission through the API."
  type        = set(string)
  default     = []

  validation {
    condition     = alltrue([for entry in var.allowed_resources : can(regex("^(service_account|network|image|reservation|kms_key|secret)=[^,*]+[*]?$", entry))])
    error_message = "Each entry is KIND=NAME; a * may only be the last character."
  }
}

variable "clients" {
  description = "IAM members that may submit jobs by upload or message, such as group:ml@example.com."
  type        = set(string)
  default     = []
}

variable "api_access" {
  description = "How clients without an identity of Cloud Run reach the function `api`, which checks every caller itself. no-invoker-check: Cloud Run's own check is off. allUsers: everyone passes it, which organisations with domain-restricted sharing refuse. none: only members with roles/run.invoker pass it."
  type        = string
  default     = "no-invoker-check"

  validation {
    condition     = contains(["no-invoker-check", "allUsers", "none"], var.api_access)
    error_message = "api_access must be no-invoker-check, allUsers or none."
  }
}

variable "serial_port_logging" {
  description = "Whether Cloud Logging also gets everything on the VMs' serial consoles, which costs as much again as the logs of the jobs. constraints/compute.disableSerialPortLogging forbids it."
  type        = bool
  default     = false
}

variable "package_mirror" {
  description = "Whether VMs install packages from a mirror of PyPI in Artifact Registry instead of from PyPI, which saves the traffic through Cloud NAT."
  type        = bool
  default     = false
}

variable "boot_images" {
  description = "Boot images of your own in place of Google's: family of Google's image => projects/P/global/images/[family/]NAME. `make image` builds them."
  type        = map(string)
  default     = {}
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

variable "tpu" {
  description = "Whether jobs may use Cloud TPU. If false, workers cannot delete TPU nodes, and `provision` has no role on them."
  type        = bool
  default     = true
}

variable "walled_accounts" {
  description = "Service accounts of jobs whose VMs get a network of their own, which no other job's VM can reach: name => account, and address range by region. With tpu = true the network admits its whole range, because it is unconfirmed whether rules by account match TPU hosts."
  type = map(object({
    service_account = string
    ranges          = map(string)
    tpu             = optional(bool, false)
  }))
  default = {}

  validation {
    condition     = alltrue([for name, wall in var.walled_accounts : can(regex("^[a-z][a-z0-9-]{0,20}[a-z0-9]$", name)) && can(regex("^[^@,=[:space:]]+@[^@,=[:space:]]+$", wall.service_account))])
    error_message = "walled_accounts must be like { finance = { service_account = \"finance@my-project.iam.gserviceaccount.com\", ranges = { us-central1 = \"10.132.0.0/20\" } } }; names have 2 to 22 lower-case letters, digits and hyphens."
  }

  validation {
    condition     = length(distinct([for wall in values(var.walled_accounts) : wall.service_account])) == length(var.walled_accounts)
    error_message = "walled_accounts has the same service_account twice: an account has one network."
  }
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
