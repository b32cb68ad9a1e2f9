package leaky

import "github.com/sluice-go/sluice/limits"

// Rate returns the current rate, with its burst.
func (b *Bucket) Rate() limits.Rate { return b.loaded().rate }

// Rate returns the rate of [Keyed.Take], with its burst.
func (k *Keyed[K]) Rate() limits.Rate { return k.current().rate }
