variable "name" {
  description = "The module in functions/, such as vm_ready."
  type        = string
}

variable "project" {
  type = string
}

variable "region" {
  type = string
}

variable "topic" {
  description = "Name of the topic whose messages are pushed to it; null for one that is called. Known before the topic exists."
  type        = string
  default     = null
}

variable "source_bucket" {
  type = string
}

variable "source_object" {
  type = string
}

variable "service_account" {
  description = "E-mail of the account it runs as."
  type        = string
}

variable "pusher" {
  description = "E-mail of the account as which Pub/Sub calls it."
  type        = string
}

variable "dead_letter_topic" {
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
  description = "Of one call; Pub/Sub waits as long for the acknowledgement."
  type        = number
}

variable "concurrency" {
  description = "Messages that one instance handles at a time."
  type        = number
}

variable "max_instances" {
  type = number
}

variable "builder" {
  description = "Resource name of the account that Cloud Build builds it as."
  type        = string
}
