#pragma once
#error "a texture does not run on the CPU"
