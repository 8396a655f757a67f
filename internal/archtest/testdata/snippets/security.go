package security

import "github.com/durable-worker/durable-worker/durable"

type ChargeArgs struct{}

//snippet
