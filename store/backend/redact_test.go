package backend_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/durable-worker/durable-worker/store/backend"
)

func TestRedisAddresses(t *testing.T) {
	t.Parallel()
	for address, shown := range map[string]string{
		"":                                   "none",
		"redis://u:canary@h:1/2":             "redis://h:1/2",
		"redis://canary@h":                   "redis://h:6379/0",
		"rediss://:can%40ary%23@[::1]:7":     "rediss://[::1]:7/0",
		"redis://:myaddr=canary@h?db=3":      "redis://h:6379/3",
		"redis://:canary@h:1?addr=i:2":       "redis://h:1,i:2",
		"unix://u:canary@/run/redis.s?db=3":  "unix:///run/redis.s?db=3",
		"redis://h?client_name=canary":       "redis://h:6379/0",
		"redis://:1234#canary@h:6379/0":      "(unreadable)",
		"redis://:1234/canary@h:6379/0":      "(unreadable)",
		"redis://:1234?canary@h:6379/0":      "(unreadable)",
		"redis://:1234?db=1&x=canary@h":      "(unreadable)",
		"redis://:canary#@h:6379":            "(unreadable)",
		"http://u:canary@h":                  "(unreadable)",
		"redis://u:canary@h/canary":          "(unreadable)",
		"redis://u:canary@h?password=canary": "(unreadable)",
	} {
		require.Equal(t, shown, backend.RedactRedis(address), address)
		err := backend.CheckRedis(address)
		require.Equal(t, shown == "(unreadable)" || address == "", err != nil, address)
		if err != nil {
			require.NotContains(t, err.Error(), "canary")
		}
	}
}
