package cli

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Bytes is a flag for bytes, such as 10M or 2GiB. Units are powers of 1024, as in curl.
type Bytes int64

const units = "KMGT"

func (s Bytes) String() string {
	n, unit := int64(s), ""
	for i := 0; i < len(units) && n != 0 && n%1024 == 0; i++ {
		n, unit = n/1024, units[i:i+1]
	}
	return strconv.FormatInt(n, 10) + unit
}

func (s *Bytes) Set(text string) error {
	digits := strings.TrimRight(strings.ToUpper(text), "IB")
	unit := int64(1)
	if i := strings.IndexAny(digits, units); i >= 0 && i == len(digits)-1 {
		unit = 1 << (10 * (1 + strings.Index(units, digits[i:])))
		digits = digits[:i]
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/2/unit {
		return errors.New("want bytes, such as 500000, 10M or 2G")
	}
	*s = Bytes(n * unit)
	return nil
}
