package postgres

import (
	"net"
	"time"
)

// deadPeer is how long a peer may leave data unacknowledged.
const deadPeer = 15 * time.Second

// dialer makes connections that notice a peer that is gone.
func dialer(timeout time.Duration) *net.Dialer {
	return &net.Dialer{
		Timeout:         timeout,
		Control:         control,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3},
	}
}
