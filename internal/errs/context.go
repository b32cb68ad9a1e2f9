package errs

import "context"

// Done returns the error of a context whose Done channel is closed. A context that
// breaks its contract and has none yet is treated as canceled: a nil error would say that
// the caller was admitted.
func Done(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return context.Canceled
}

// Honest returns ctx with an Err that is not nil once Done is closed, whatever its own
// says. A child made by context.WithCancel panics over a parent that breaks that, in its
// own goroutine where nothing can recover.
func Honest(ctx context.Context) context.Context {
	if ctx.Done() == nil {
		return ctx
	}
	return honest{ctx}
}

type honest struct{ context.Context }

func (h honest) Err() error {
	err := h.Context.Err()
	if err == nil {
		select {
		case <-h.Done():
			return context.Canceled
		default:
		}
	}
	return err
}
