package flowcontrol

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/durable"
	"github.com/durable-worker/durable-worker/durable/durabletest"
	"github.com/durable-worker/durable-worker/limit"
	"github.com/durable-worker/durable-worker/store"
)

//snippet

func importRows(context.Context, *durable.Run[ImportArgs]) error { return nil }

//snippet

//snippet

//snippet

//snippet

var (
	Feed  = durable.NewLimit("feed", durable.Mutex())
	Begin = durable.NewJob[ImportArgs]("begin")
	End   = durable.NewJob[ImportArgs]("end")
)

//snippet

func _(ctx context.Context, run *durable.Run[ImportArgs], response *http.Response) error {
	//snippet
	return nil
}

//snippet

//snippet
