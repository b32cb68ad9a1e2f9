-- An instant is kept as redis-cell keeps it: nanoseconds since 1970, in decimal.
-- They are too many for a double, so digits are split into seconds and
-- nanoseconds, and what is computed with is the distance from now: exact up to
-- 2^53 ns, 104 days.

-- most is the largest distance that can be computed with.
local most = 9007199254740991 - 1000000000

-- ahead returns how many nanoseconds digits are ahead of now, or nil unless they are an
-- instant, which a signed 64-bit integer can hold.
local function ahead(digits)
  if not digits or #digits > 19 or (#digits == 19 and digits > '9223372036854775807') then return nil end
  local s = (tonumber(string.sub(digits, 1, -10)) or 0) - sec
  return s * 1000000000 + (tonumber(string.sub(digits, -9)) - us * 1000)
end

-- instant returns the digits of the instant that is so many nanoseconds ahead
-- of now, or behind it if negative. math.fmod is exact, a division is not.
local function instant(distance)
  local ns = math.fmod(distance, 1000000000)
  local s = sec + (distance - ns) / 1000000000
  ns = ns + us * 1000
  if ns >= 1000000000 then s, ns = s + 1, ns - 1000000000 end
  if ns < 0 then s, ns = s - 1, ns + 1000000000 end
  return string.format('%d%09d', s, ns)
end

-- expiry returns after how many milliseconds something may be forgotten that
-- counts for so many nanoseconds: not before that.
local function expiry(distance) return whole(math.ceil(distance / 1000000) + 1) end
