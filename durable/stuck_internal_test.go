package durable

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestAfterStanding_StopHoldsInEveryPartOfTheGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for stopAt := range 21 {
			called := false
			s := afterStanding(time.Second, time.Second, func() { called = true })
			<-time.After(time.Duration(stopAt)*100*time.Millisecond + time.Millisecond)
			s.stop()
			<-time.After(time.Minute)
			synctest.Wait()
			if called != (stopAt == 20) {
				t.Errorf("stopped after %d00 ms of 2 s: called is %v", stopAt, called)
			}
		}
	})
}
