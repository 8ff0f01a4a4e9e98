variable "installed" {
  description = <<-EOT
    What all functions of the installation share. prefix: beginning of the names of everything that the installation owns. source_bucket:
    has the archives. pusher: e-mail address of the service account with which Pub/Sub calls functions. pubsub_agent: IAM member of Pub/Sub's
    service agent, which moves undeliverable messages to dead_letter_topic. builder: resource name of the service account with which Cloud
    Build builds functions. repository: id of the Artifact Registry repository for their images. database: resource name of the one
    that a function may use. identities: id of the wait after which IAM finds the service accounts.
  EOT
  type = object({
    prefix            = string
    project           = string
    region            = string
    source_bucket     = string
    pusher            = string
    pubsub_agent      = string
    dead_letter_topic = string
    builder           = string
    repository        = string
    database          = string
    identities        = string
  })
}

variable "account" {
  description = "The function's service account."
  type        = object({ email = string, member = string })
}

variable "state" {
  description = "What the function may do in the database: user, viewer, or null. A user also writes logs."
  type        = string
  default     = null
}

variable "publishes" {
  description = "Topics that the function may publish to: name => id."
  type        = map(string)
  default     = {}
}

variable "ready" {
  description = "What must exist before the function does. Its grants do not wait for that."
  type        = any
}

variable "name" {
  description = "Name of the module in functions/, such as vm_ready."
  type        = string
}

variable "entry_point" {
  description = "Name of the Python function in the archive, which is also the name of its module in functions/. null: the same as `name`."
  type        = string
  default     = null
}

variable "topics" {
  description = "Names of the topics whose messages are pushed to the function. Empty for a function that clients call."
  type        = list(string)
}

variable "source_object" {
  type = string
}

variable "environment" {
  type = map(string)
}

variable "memory" {
  type = string
}

variable "cpu" {
  type    = string
  default = "1"
}

variable "timeout_s" {
  description = "Timeout of one call, and acknowledgement deadline of its messages, in seconds."
  type        = number
}

variable "concurrency" {
  description = "Number of requests that one instance handles at the same time."
  type        = number
}

variable "max_instances" {
  type = number
}

variable "description" {
  description = "Description of the function. Empty: the path of its module."
  type        = string
  default     = ""
}

variable "subscription_suffix" {
  description = "Last part of the names of the subscriptions, which begin with the topic's. Only one function that reads a topic may leave it out."
  type        = string
  default     = ""
}

variable "filter" {
  description = "Filter of the subscriptions, by the attributes of the messages. Empty: all messages."
  type        = string
  default     = ""
}

variable "secrets" {
  description = "Environment variables with the values of secrets: variable => id of the secret."
  type        = map(string)
  default     = {}
}
